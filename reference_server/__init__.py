"""reference_server: a streaming LLM server to test against and to break on purpose."""
