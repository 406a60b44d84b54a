/* The shared footage, for tests that skip if it does not exist. */
#ifndef TESTS_VIDEO_FOOTAGE_H
#define TESTS_VIDEO_FOOTAGE_H

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"

#include <criterion/criterion.h>
#include <stdlib.h>

/* Path of `file` among the footage; the caller's. */
static inline weft_buf footage_path(const char *file)
{
    const char *shared = getenv("WEFT_SHARED");
    weft_buf path = {0};
    weft_buf_printf(&path, "%s/videos/%s", shared ? shared : "../shared", file);
    return path;
}

/* The known data of each file (new reference); skips the test without footage. */
static inline json_t *footage_manifest(void)
{
    weft_buf path = footage_path("MANIFEST.json");
    json_t *manifest = NULL;
    if (!weft_path_exists(path.data))
        cr_skip("no shared footage");
    cr_assert_eq(weft_json_load(path.data, &manifest), WEFT_OK);
    weft_buf_free(&path);
    return manifest;
}

#endif
