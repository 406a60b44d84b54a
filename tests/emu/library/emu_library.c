#include "emu_library.h"

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

const emu_library_driver *emu_library_driver_get(void)
{
    static emu_library_driver driver;
    const char *name = getenv("WEFT_CUDA_LIBRARY");
    void *library = name ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!library)
        return NULL;
    *(void **)&driver.add_work = dlsym(library, "weft_emulated_repeated_work");
    *(void **)&driver.device = dlsym(library, "weft_emulated_device");
    dlclose(library); /* the program holds it */
    return driver.add_work && driver.device ? &driver : NULL;
}

bool emu_library_fault(const char *name)
{
    const char *fault = getenv("WEFT_EMU_FAULT");
    return fault && !strcmp(fault, name);
}

float emu_library_round(float value, int kept)
{
    const int dropped = 23 - kept;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (isfinite(value))
        bits = (bits + (1u << (dropped - 1)) - 1 + (bits >> dropped & 1)) >> dropped << dropped;
    memcpy(&value, &bits, 4);
    return value;
}
