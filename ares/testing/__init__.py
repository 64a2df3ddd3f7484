"""Test programs: the simulator, torture of real processes, fuzzing, judges of histories."""
