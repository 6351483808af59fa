"""An HTTP/1.1 client over sockets with deadlines and cancellation; bodies go straight into the caller's buffers.

A *route* is how to reach a URL: directly or through a proxy. A *connection* is one socket; the *pool* keeps idle ones.
*Secret headers* are sent only to the origin of the request's own URL.

Start with `client.send_request`. `routes` finds proxies, `connect` opens sockets, `connection` is http.client with
checks over a `socket_stream` with limits, `redirects` decides where credentials go, `response` interprets statuses and
headers, and `error_mapping` turns exceptions into TransferErrors.
"""
