/* Cascade problems and plans as JSON (docs/explanation/planning.md has the schema). */
#ifndef WEFT_PLAN_CASCADE_JSON_H
#define WEFT_PLAN_CASCADE_JSON_H

#include "base/json.h"
#include "plan/cascade/cascade.h"

#define WEFT_CASCADE_FORMAT "weft.cascades/1"

/* Parses a cascade problem:
 * {"cascades": [{"id": "s0.vae", "after": ["s0.text"],
 *                "degrees": {"1": {"seconds": 4.0, "bytes": 2e9}, ...}}, ...]}
 * "after" and "bytes" are optional. `name` begins the messages. */
weft_status weft_cascade_list_from_json(const json_t *root, const char *name, weft_arena *arena,
                                        weft_cascade_list *out);
weft_status weft_cascade_list_load(const char *path, weft_arena *arena, weft_cascade_list *out);

/* Creates {"makespan", "lower_bound", "gap", "proved", "devices", "cascades": [{"id", "degree",
 * "start", "end", "devices"}, ...]}. The caller owns *out. */
weft_status weft_cascade_plan_to_json(const weft_cascade_solution *plan, json_t **out);

/* A parsed plan. The parser checks that ids are unique and each cascade has `degree` devices.
 * Devices must not overlap in time, and `after` (if present) must hold. The makespan must be the
 * last end, and not below the bound. */
typedef struct weft_cascade_plan_item {
    const char *id;
    int64_t degree;
    double start, end;
    int32_t *device; /* [degree] */
} weft_cascade_plan_item;
typedef struct weft_cascade_plan {
    double makespan, lower_bound;
    bool proved;
    int64_t devices;
    weft_cascade_plan_item *item;
    int64_t count;
    const char *cluster; /* spec of the plan's cluster; NULL: none */
    const char *cluster_id;
} weft_cascade_plan;
weft_status weft_cascade_plan_from_json(const json_t *root, const char *name, weft_arena *arena,
                                        weft_cascade_plan *out);

#endif
