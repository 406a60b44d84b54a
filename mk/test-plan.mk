# CBC is the referee of the cascade planner; the product does not link it.
EXTRA_plan := -lCbcSolver -lCbc
