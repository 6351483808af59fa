"""Pixi workspaces on the submit side: manifests, lock files, tasks.

A workspace becomes a `WorkspaceEnvironment`: what a worker needs to install and activate one of its environments.
Start with `environment`; `manifest` reads pixi.toml and pyproject.toml, `lock_file` reads pixi.lock with py-rattler,
Pixi's own library, `tasks` renders tasks for /bin/sh, and `workspace_files` collects the files that jobs get. The extra
`packtrain[pixi]` has what these modules need.
"""
