"""Commands about the results of a run: outputs, report, plot."""
