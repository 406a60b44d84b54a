/* What every plan's file begins with: its format, the weft that made it, and a hash of all of it. A
 * plan that was edited after it was made is not the one that was checked, and is refused. */
#ifndef WEFT_PLAN_SEAL_FILE_H
#define WEFT_PLAN_SEAL_FILE_H

#include "base/json.h"

/* Sets "format" (such as "weft.cascades/1"), "weft" and "id". Last, when all else is set. */
weft_status weft_plan_seal(json_t *plan, const char *format);
/* WEFT_E_FORMAT: another format, none, or not the plan that was made. */
weft_status weft_plan_seal_check(const json_t *plan, const char *format, const char *where);

#endif
