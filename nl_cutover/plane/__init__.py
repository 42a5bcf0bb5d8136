"""The plane: the engine, the container that runs Memory Core, where its graph lives, and what is read inside it."""
