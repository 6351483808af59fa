"""What runs attempts: `api` is the protocol, `local` runs them on this machine, `bundle` makes the
zip that rides to the worker. Not here: deciding what to run (`supervise`)."""
