"""Pure decisions: which chunks are taken, in which order lines are read, where a tail begins, which days may be made."""
