#include "pool.h"

#include <stdlib.h>
#include <string.h>

/* A block begins with its size, so that memory of another allocator would be detected. */
enum { MARK = 0x5745, HEAD = 128 };
typedef struct head {
    void *start;
    size_t bytes;
    int mark;
} head;

static head *head_of(void *ptr)
{
    return (head *)((char *)ptr - sizeof(head));
}

static void *pool_allocate(void *user, size_t bytes, size_t alignment)
{
    pool *p = user;
    if (atomic_fetch_add(&p->calls, 1) + 1 == p->fail_at || alignment < 16 || alignment > HEAD)
        return NULL;
    char *start = aligned_alloc(HEAD, (HEAD + bytes + HEAD - 1) / HEAD * HEAD);
    if (!start)
        return NULL;
    *head_of(start + HEAD) = (head){.start = start, .bytes = bytes, .mark = MARK};
    memset(start + HEAD, 0xa5, bytes);
    p->blocks++;
    return start + HEAD;
}

static void pool_release(void *user, void *ptr)
{
    pool *p = user;
    if (head_of(ptr)->mark != MARK)
        p->foreign = true;
    p->blocks--;
    head_of(ptr)->mark = 0;
    free(head_of(ptr)->start);
}

static void *pool_reallocate(void *user, void *ptr, size_t bytes)
{
    void *grown = pool_allocate(user, bytes, 16);
    if (!grown)
        return NULL;
    const size_t old = head_of(ptr)->bytes;
    memcpy(grown, ptr, old < bytes ? old : bytes);
    pool_release(user, ptr);
    return grown;
}

weft_status_code use_pool(pool *p)
{
    weft_allocator allocator = WEFT_INIT(weft_allocator);
    allocator.user = p;
    allocator.allocate = pool_allocate;
    allocator.reallocate = pool_reallocate;
    allocator.release = pool_release;
    return weft_allocator_set(&allocator);
}
