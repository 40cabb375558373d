"""The version of this release, for trees that are not installed as packages too."""

VERSION = "0.1.0"
