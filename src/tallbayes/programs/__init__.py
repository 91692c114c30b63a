"""Programs: functions as values, compiled once and ahead of need.

identity      two functions that compute the same thing are the same thing
compilation   jit with a static first argument; the second caller waits for the first
canary        one small sum with a known answer, before jaxlib is trusted with any other
disk_cache    programs of an earlier command are read instead of compiled again
later         JAX, loaded at its first use
functions     functions of arrays that NumPy and JAX share, in NumPy
functions_in_jax  the same in JAX
"""
