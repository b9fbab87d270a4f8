"""Models: queries whose results are kept in sync with their sources as tables and views of the lake."""
