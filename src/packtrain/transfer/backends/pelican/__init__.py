"""The backend for osdf:/// and pelican:// URLs.

A *federation* has a *director*, which redirects to the *servers* (caches and origins) that have an object. Start with
`backend`; `director` finds the servers, `server` talks to one of them.
"""
