"""conformance: is this stream right? Bytes in, verdicts out, with the bytes as evidence."""
