"""Programs that test ares: the simulator, torture of real processes, fuzzing, and the judges of histories."""
