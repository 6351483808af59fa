"""An HTTP/1.1 client over sockets with deadlines and cancellation; bodies go straight into the caller's buffers.

A *route* is how to reach a URL: directly or through a proxy. A *connection* is one socket; the *pool* keeps idle ones.
*Secret headers* are sent only to the origin of the request's own URL.

Start with `client.send_request`. `connect` opens sockets (proxies, TLS), `connection` reads and writes, `response_body`
decodes bodies, `response` interprets statuses and headers, and `error_mapping` turns exceptions into TransferErrors.
"""
