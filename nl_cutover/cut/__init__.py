"""The guarded moment in which the landing command runs."""
