"""What tests share: problems, files, processes, runs; nothing here is a test."""
