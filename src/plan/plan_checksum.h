/* Header of every plan file: its format, the weft version that made it, and a hash of the content.
 * A plan that was edited after it was made has not been checked, and is rejected. */
#ifndef WEFT_PLAN_PLAN_CHECKSUM_H
#define WEFT_PLAN_PLAN_CHECKSUM_H

#include "base/json.h"

/* Sets "format" (such as "weft.cascades/1"), "weft" and "id". Call it last, when all other keys are
 * set. */
weft_status weft_plan_add_checksum(json_t *plan, const char *format);
/* WEFT_E_FORMAT: another or no format, or the plan has been edited. */
weft_status weft_plan_verify_checksum(const json_t *plan, const char *format, const char *where);

#endif
