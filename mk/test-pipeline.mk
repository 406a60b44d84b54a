# CBC is the referee of the schedule synthesiser; the product does not link it.
EXTRA_pipeline := -lCbcSolver -lCbc
