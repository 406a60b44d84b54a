#include "base/path_stamp.h"

#include "base/fs.h"
#include "base/hash.h"

#include <sys/stat.h>

static uint64_t add_facts(uint64_t stamp, const char *path)
{
    struct stat facts = {0};
    if (stat(path, &facts) != 0)
        return stamp;
    const uint64_t values[] = {stamp, (uint64_t)facts.st_ino, (uint64_t)facts.st_size,
                               (uint64_t)facts.st_mtim.tv_sec, (uint64_t)facts.st_mtim.tv_nsec};
    return XXH3_64bits(values, sizeof values);
}

uint64_t weft_path_stamp(uint64_t stamp, const char *path, int depth)
{
    weft_names names = {0};
    stamp = add_facts(stamp, path);
    if (depth < 0 || !weft_path_is_dir(path))
        return stamp;
    if (weft_list_dir(path, false, &names) != WEFT_OK)
        weft_error_clear();
    for (int64_t i = 0; i < names.count; i++) {
        char *child = weft_path_join(path, names.name[i]);
        if (child)
            stamp = weft_path_stamp(stamp, child, depth - 1);
        weft_free(child);
    }
    weft_names_free(&names);
    return stamp;
}
