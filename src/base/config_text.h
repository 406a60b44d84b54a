#ifndef WEFT_BASE_CONFIG_TEXT_H
#define WEFT_BASE_CONFIG_TEXT_H

#include "base/config.h"
#include "base/memory.h"

/* The resolved config as YAML that loads back to the same values. */
void weft_config_dump(const weft_section *root, const void *config, weft_buf *out);
/* Dumps with the earliest name of each key, for hashes that renamed keys must not change. */
void weft_config_dump_earlier(const weft_section *root, const void *config, weft_buf *out);
/* A text in quotes, as YAML and JSON both read it. */
void weft_config_put_string(weft_buf *out, const char *text);
/* Appends one line for each difference of two dumps: "optimizer.beta2: 0.9, was 0.95".
 * WEFT_E_CONFIG: `before` is not YAML. */
weft_status weft_config_changes(const char *before, const char *now, weft_buf *out);
/* Every key with type, unit, default, range and help: plain text, or a Markdown table. */
void weft_config_help(const weft_section *root, bool markdown, weft_buf *out);
/* The keys of the top level that are not sections, as plain text. */
void weft_config_help_keys(const weft_section *root, weft_buf *out);
/* The keys of one section and of the sections in it, as plain text. `path` is a dotted name, such
 * as "parallel.cascades"; ".N" of a list may be omitted. Returns false if no section has it. */
bool weft_config_help_section(const weft_section *root, const char *path, weft_buf *out);

#endif
