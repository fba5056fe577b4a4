"""What a pod would do, from programs compiled for it on a machine that has none.

The step functions that run are compiled with abstract arrays for a named TPU slice (extra `tpu`).
What the compiler says is measured by compilation; what a step would cost is predicted from it.
"""
