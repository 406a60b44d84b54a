#include "base/launcher.h"

#include "base/config.h"

#include <stdlib.h>

int weft_launcher_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK",
                                        "PMIX_RANK"};
    for (int i = 0; i < WEFT_COUNT(names); i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return -1;
}
