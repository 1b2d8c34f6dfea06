package kafka

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// holding is what a member held in a generation of the group.
type holding struct {
	generation int32
	partitions []int32 // ascending, none twice
}

// Bounds of a holding as it travels. A coordinator keeps the user data of all members in one record of at most a
// megabyte or so.
const (
	holdingVersion = 1
	maxHolding     = 64 << 10 // bytes
)

// encode writes a version, the generation, and the partitions as the gaps between them: a byte or two for each. A
// holding too large to travel is told of as far as it fits.
func (h holding) encode() []byte {
	b := binary.AppendVarint([]byte{holdingVersion}, int64(h.generation))
	before := int32(-1)
	for _, p := range h.partitions {
		if len(b)+binary.MaxVarintLen32 > maxHolding {
			break
		}
		b = binary.AppendUvarint(b, uint64(p-before-1)) //nolint:gosec // ascending
		before = p
	}
	return b
}

// decodeHolding reads a holding. What is not one counts as nothing held: a member that says nonsense costs itself its
// partitions' place and nobody else anything.
func decodeHolding(b []byte) holding {
	if len(b) == 0 || len(b) > maxHolding || b[0] != holdingVersion {
		return holding{}
	}
	generation, n := binary.Varint(b[1:])
	if n <= 0 || generation != int64(int32(generation)) { //nolint:gosec // that is the question
		return holding{}
	}
	h := holding{generation: int32(generation)} //nolint:gosec // checked
	before := int64(-1)
	for b = b[1+n:]; len(b) > 0; b = b[n:] {
		var gap uint64
		if gap, n = binary.Uvarint(b); n <= 0 || gap > 1<<31 {
			return holding{}
		}
		before += int64(gap) + 1
		if before != int64(int32(before)) { //nolint:gosec // that is the question
			return holding{}
		}
		h.partitions = append(h.partitions, int32(before)) //nolint:gosec // checked
	}
	return h
}

// claim is one member's word on what it held.
type claim struct {
	member string
	holding
}

// deal divides partitions (ascending) among the members and returns each one's share, ascending, in the order of the
// claims. Shares differ by at most one. As many partitions as that allows stay with who held them last, which is who
// claims them with the highest generation (of two with the same, the member whose id sorts first). It depends on
// nothing but its arguments, and not on the order of the claims.
//
// It is optimal: with n partitions and m members, n mod m members may have one more than n/m. A member can keep all it
// held up to its share; so the larger shares go to members that hold more than n/m first, and nothing else is to be
// gained.
//
// Takes n log n + m log m.
func deal(claims []claim, partitions []int32) [][]int32 {
	shares := make([][]int32, len(claims))
	if len(claims) == 0 {
		return shares
	}
	byID := make([]int, len(claims))
	for i := range byID {
		byID[i] = i
	}
	slices.SortFunc(byID, func(a, b int) int { return cmp.Compare(claims[a].member, claims[b].member) })

	owners := lastOwners(claims, byID, partitions)
	for at, who := range owners {
		if who >= 0 {
			shares[who] = append(shares[who], partitions[at])
		}
	}
	least, larger := len(partitions)/len(claims), len(partitions)%len(claims)
	allowed := make([]int, len(claims))
	for _, who := range byID {
		allowed[who] = least
		if larger > 0 && len(shares[who]) > least {
			allowed[who]++
			larger--
		}
	}
	for _, who := range byID {
		if larger > 0 && allowed[who] == least {
			allowed[who]++
			larger--
		}
	}

	// What a member has too much of goes to those that have too little, as does what nobody held.
	var free []int32
	for who := range shares {
		if keep := allowed[who]; len(shares[who]) > keep {
			free = append(free, shares[who][keep:]...)
			shares[who] = shares[who][:keep]
		}
	}
	for at, who := range owners {
		if who < 0 {
			free = append(free, partitions[at])
		}
	}
	slices.Sort(free)
	for _, who := range byID {
		if lack := allowed[who] - len(shares[who]); lack > 0 {
			shares[who] = append(shares[who], free[:lack]...)
			slices.Sort(shares[who])
			free = free[lack:]
		}
	}
	return shares
}

// lastOwners says who held each partition last, as an index into the claims, -1 where nobody did.
func lastOwners(claims []claim, byID []int, partitions []int32) []int {
	owners := make([]int, len(partitions))
	for at := range owners {
		owners[at] = -1
	}
	for _, who := range byID {
		for _, p := range claims[who].partitions {
			at, ok := slices.BinarySearch(partitions, p)
			if ok && (owners[at] < 0 || claims[who].generation > claims[owners[at]].generation) {
				owners[at] = who
			}
		}
	}
	return owners
}
