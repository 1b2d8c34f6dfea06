package consumer

import "spillway/order"

// TenantFrom says where a record names its tenant.
type TenantFrom int

// Places of a tenant's name.
const (
	NoTenants         TenantFrom = iota // there are none
	TenantFromHeader                    // the newest header of a name
	TenantFromPointer                   // a JSON pointer (RFC 6901) into the value
)

// MaxTenant bounds a tenant's name, in bytes. What is longer is cut there, so that those who differ only beyond it are
// one tenant.
const MaxTenant = 200

// Tenant finds whose order a record is. The zero value finds nobody.
type Tenant struct {
	From    TenantFrom
	Header  string // for TenantFromHeader
	Pointer string // for TenantFromPointer: starts with a slash
}

// Of returns the tenant's name, "" for a record that names none: all of those are one tenant, so that leaving the name
// out is no way around a limit. It keeps nothing of m's memory.
func (t Tenant) Of(m *order.Message) string {
	switch t.From {
	case NoTenants:
	case TenantFromHeader:
		v, _ := m.Header(t.Header)
		return string(v[:min(len(v), MaxTenant)])
	case TenantFromPointer:
		name, why, _ := Number{From: FromPointer, Pointer: t.Pointer}.point(m.Value)
		if why == order.NoReason {
			return string([]byte(name[:min(len(name), MaxTenant)]))
		}
	}
	return ""
}
