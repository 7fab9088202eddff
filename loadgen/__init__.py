"""loadgen: offers a known load to a streaming LLM endpoint and measures what users would feel."""
