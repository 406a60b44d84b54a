/* Recipes: which layouts make a parallelism. */
#include "pass/pass.h"

#include <string.h>

#define SPLIT(d) {WEFT_S, d}
#define WHOLE {WEFT_R, 0}

static const weft_recipe_row dp_rows[] = {
    {"batch.*", "dp", SPLIT(0)},
};
const weft_recipe weft_recipe_dp = {"dp", dp_rows, sizeof dp_rows / sizeof *dp_rows};

const weft_recipe *weft_recipe_find(const char *name)
{
    static const weft_recipe *const all[] = {&weft_recipe_dp};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, name))
            return all[i];
    return NULL;
}
