# CBC is the referee of the cascade planner and SimGrid that of the simulator; the product links
# neither. Without SimGrid its test is skipped.
EXTRA_plan := -lCbcSolver -lCbc $(if $(wildcard /usr/include/simgrid/engine.h),-lsimgrid)
