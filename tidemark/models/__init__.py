"""Models: queries whose results are kept in step with their sources as tables and views of the lake."""
