"""Jobs and runs as the admin site names them. They have no tables: the pages read the site of Toban over REST."""

from django.db import models


class Job(models.Model):
    """A job; gives the pages their address and the permission toban.view_job."""

    class Meta:
        managed = False
        default_permissions = ("view",)


class Run(models.Model):
    """A run; gives the pages their address and the permission toban.view_run."""

    class Meta:
        managed = False
        default_permissions = ("view",)
