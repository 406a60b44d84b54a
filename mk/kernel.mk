# Multiply-adds of the vector code become FMA where the processor has it; -std=c17 alone forbids that.
$(O)/src/kernel/cpu/%.o: CFLAGS += -ffp-contract=fast
