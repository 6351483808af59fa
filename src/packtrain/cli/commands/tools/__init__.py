"""Commands around packtrain itself: convert, doctor, simulate, plugin, schema, completion."""
