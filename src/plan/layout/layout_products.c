#include "plan/layout/layout_products.h"

typedef struct products {
    const int64_t *most;
    int count;
    weft_layout_products_fn *visit;
    void *user;
    int64_t degree[WEFT_LAYOUT_DEGREES];
} products;

static bool is_allowed(const products *p, int axis, int64_t degree)
{
    return !p->most[axis] || degree <= p->most[axis];
}

static weft_status try_axis(products *p, int axis, int64_t left)
{
    if (axis + 1 == p->count) {
        p->degree[axis] = left;
        return is_allowed(p, axis, left) ? p->visit(p->user, p->degree) : WEFT_OK;
    }
    for (int64_t d = left; d >= 1; d--) {
        if (left % d || !is_allowed(p, axis, d))
            continue;
        p->degree[axis] = d;
        WEFT_TRY(try_axis(p, axis + 1, left / d));
    }
    return WEFT_OK;
}

weft_status weft_layout_products(int64_t ranks, const int64_t *most, int count,
                                 weft_layout_products_fn *visit, void *user)
{
    products p = {.most = most, .count = count, .visit = visit, .user = user};
    return try_axis(&p, 0, ranks);
}
