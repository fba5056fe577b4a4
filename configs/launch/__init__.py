"""Where `specsample launch` runs a job: a back end, and what it asks for."""
