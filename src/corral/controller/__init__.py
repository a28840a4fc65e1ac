"""Controllers make what was asked true: keyed, level-triggered, one holder of each lease at a time."""
