"""Sources of Kafka: topics, polls of groups and producer states, files of a broker's own tools."""
