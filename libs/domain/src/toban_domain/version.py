"""The version of this release, also for source trees that are not installed as packages."""

VERSION = "0.1.0"
