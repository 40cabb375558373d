"""The A/B bench: one harness measures two or three commits alternately, each in a checkout, environment and stack of its own."""
