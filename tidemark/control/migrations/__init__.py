"""The steps that bring a control database of any age to the newest schema."""
