# A small program for the tests that need mpirun (tests/runtime/*.sh).
test-bin: $(O)/test-tools/ranks
$(O)/test-tools/ranks: $(O)/tests/runtime/tool/ranks.o $(O)/libweft.a
	@mkdir -p $(@D)
	@echo "  LINK $@"; $(CC) $(SANFLAGS) -fopenmp -o $@ $^ $(LIBS)
