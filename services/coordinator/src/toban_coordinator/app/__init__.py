"""Use cases of a coordinator: what calls and loops carry out. Arguments and results are domain objects and dataclasses, never protobuf."""
