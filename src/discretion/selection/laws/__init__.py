"""The laws of the number of runs, a family to a module; `discretion.selection.repetitions` has them all."""
