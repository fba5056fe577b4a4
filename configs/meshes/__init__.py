"""Device meshes and the tables from logical to mesh axes."""
