/* The emulated driver, planted faults and roundings, for all emulated libraries of NVIDIA. */
#ifndef WEFT_EMU_LIBRARY_H
#define WEFT_EMU_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* Memory that a work reads or writes. The driver sets where the work finds it. */
typedef struct weft_emulated_range {
    const void *data;
    size_t bytes;
    int writes;
    char *inside;
} weft_emulated_range;
typedef struct emu_library_driver {
    int (*add_work)(void *stream, weft_emulated_range *range, int count, void (*run)(void *user),
                    const void *user, size_t bytes);
    int (*device)(void);
} emu_library_driver;
/* NULL: the process has no emulated driver. */
const emu_library_driver *emu_library_driver_get(void);

/* Whether WEFT_EMU_FAULT names the fault. */
bool emu_library_fault(const char *name);
/* Keeps `kept` bits of the mantissa, rounded to nearest even. */
float emu_library_round(float value, int kept);

#endif
