#ifndef WEFT_GENERATE_GENERATOR_FEATURE_CACHE_RULE_H
#define WEFT_GENERATE_GENERATOR_FEATURE_CACHE_RULE_H

#include "base/memory.h"
#include "generate/generator/feature_cache.h"

/* Parses a rule. "off"; "conservative" or "fast": the family's row for a model of this size and
 * `pixels` per frame; or a rule by name: block:T, teacache:T, every:N, attention:N, followed by
 * ",warm=SHARE", ",last=N", ",run=N" or ",front=N". *on: false for "off". WEFT_E_UNSUPPORTED: the
 * family has no such row. */
weft_status weft_feature_cache_choose(const char *text, const weft_model *denoiser, int64_t pixels,
                                      weft_feature_cache_rule *rule, bool *on);
/* Appends the rule for messages, such as "first block 0.08". */
void weft_feature_cache_name(const weft_feature_cache_rule *rule, weft_buf *out);

#endif
