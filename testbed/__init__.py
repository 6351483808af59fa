"""Real components for tests and benchmarks, brought up on the machine at hand: servers, schedulers, containers,
an old Python, datasets. Not part of what is installed; one module a component."""
